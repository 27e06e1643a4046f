;; attack: No costs at all.
;; expect: score -> bad-answer

;; in score:
(call $list (i32.const 0) (i32.const 0))
