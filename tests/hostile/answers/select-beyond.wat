;; attack: The selector answers a row that does not exist.
;; expect: select -> bad-answer

;; in select:
(call $chosen (local.get $rows) (f64.const 1))
