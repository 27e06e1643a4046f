;; attack: A list that starts where its memory ends.
;; expect: score -> bad-answer

;; in score:
(call $list (i32.const 65536) (i32.const 3))
