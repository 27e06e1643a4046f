;; attack: The answer itself lies beyond its memory.
;; expect: score -> bad-answer

;; in score:
(i32.const 65535)
