;; attack: The selector answers neither a row nor none.
;; expect: select -> bad-answer

;; in select:
(drop (call $chosen (i32.const 0) (f64.const 1)))
(i32.store (i32.const 168) (i32.const 2))
(i32.const 160)
