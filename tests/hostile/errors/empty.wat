;; attack: Refuses to answer, without words.
;; expect: score -> policy-error

;; in score:
(call $error (i32.const 0) (i32.const 0))
