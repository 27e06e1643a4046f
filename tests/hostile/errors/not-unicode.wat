;; attack: An error that is no text.
;; expect: score -> bad-answer

;; in score:
(i32.store (i32.const 8192) (i32.const 0xfffefdfc))
(call $error (i32.const 8192) (i32.const 4))
