;; attack: A list that reaches beyond its memory.
;; expect: score -> bad-answer

;; in score:
(call $list (i32.const 0) (i32.const 8193))
