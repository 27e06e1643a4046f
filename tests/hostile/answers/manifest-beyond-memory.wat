;; attack: The manifest lies beyond its memory.
;; expect: describe -> bad-answer

;; in describe:
(i32.const 65535)
