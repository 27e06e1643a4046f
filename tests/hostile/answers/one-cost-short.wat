;; attack: A cost too few.
;; expect: score -> bad-answer

;; in score:
(call $list (local.get $numbers) (i32.sub (local.get $rows) (i32.const 1)))
