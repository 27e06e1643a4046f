;; attack: The selector says that no row is left.
;; expect: keep -> filtered

;; in select:
(drop (call $chosen (i32.const 0) (f64.const 1)))
(i32.store (i32.const 168) (i32.const 0))
(i32.const 160)
