;; attack: The selector answers a cost that is no number.
;; expect: select -> bad-answer

;; in select:
(call $chosen (i32.const 0) (f64.const nan))
