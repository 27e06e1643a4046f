;; attack: A cost too many.
;; expect: score -> bad-answer

;; in score:
(call $list (local.get $numbers) (i32.add (local.get $rows) (i32.const 1)))
