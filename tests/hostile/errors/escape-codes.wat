;; attack: An error that would clear a terminal and turn the text after it around.
;; expect: score -> policy-error

;; in core:
(data (i32.const 8192) "\1b[2J\1b]0;owned\07\e2\80\aeabc\00\0d\0a")

;; in score:
(call $error (i32.const 8192) (i32.const 24))
