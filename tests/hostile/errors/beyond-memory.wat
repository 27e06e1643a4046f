;; attack: An error that lies beyond its memory.
;; expect: score -> bad-answer

;; in score:
(call $error (i32.const 65530) (i32.const 100))
