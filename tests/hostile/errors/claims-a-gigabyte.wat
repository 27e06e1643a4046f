;; attack: An error of 1 GiB of which its memory holds a page.
;; expect: score -> bad-answer

;; in score:
(call $error (i32.const 0) (i32.const 0x40000000))
