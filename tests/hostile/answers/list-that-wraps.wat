;; attack: A list whose end lies before its start.
;; expect: score -> bad-answer

;; in score:
(call $list (i32.const -8) (i32.const -1))
