;; attack: The answer itself lies at an odd address.
;; expect: score -> bad-answer

;; in score:
(i32.const 130)
