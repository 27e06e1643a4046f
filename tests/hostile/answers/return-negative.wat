;; attack: The answer itself is at address -1.
;; expect: score -> bad-answer

;; in score:
(i32.const -1)
