;; attack: Resolves a request with a due time that is not finite.
;; expect: on-event -> bad-answer

;; in on-event:
(call $resolve (i32.const 0) (f64.const inf) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0))
