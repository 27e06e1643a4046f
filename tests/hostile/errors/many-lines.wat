;; attack: An error of 20,000 line breaks, to forge a log.
;; expect: score -> policy-error

;; in score:
(memory.fill (i32.const 20000) (i32.const 10) (i32.const 20000))
(call $error (i32.const 20000) (i32.const 20000))
