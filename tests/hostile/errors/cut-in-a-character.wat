;; attack: An error whose last character is not whole.
;; expect: score -> bad-answer

;; in score:
(i32.store (i32.const 8192) (i32.const 0xe2))
(call $error (i32.const 8192) (i32.const 1))
