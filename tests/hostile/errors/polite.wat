;; attack: Refuses to answer, in words.
;; expect: score -> policy-error

;; in score:
(call $error (i32.const 1024) (i32.const 12))
