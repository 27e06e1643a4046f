;; attack: An error with half a pair of UTF-16.
;; expect: score -> bad-answer

;; in score:
(i32.store (i32.const 8192) (i32.const 0x80a0ed))
(call $error (i32.const 8192) (i32.const 3))
