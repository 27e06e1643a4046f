;; attack: Admits a request with a due time that is no number.
;; expect: classify -> bad-answer

;; in classify:
(call $admit (local.get $ticket) (f64.const nan) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0))
