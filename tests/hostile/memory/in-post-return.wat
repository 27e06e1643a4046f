;; attack: Grows its memory after a good answer.
;; expect: score -> memory

;; in core:
(global $armed (mut i32) (i32.const 0))

;; in score:
(global.set $armed (i32.const 1)) (call $list (local.get $numbers) (local.get $count))

;; in post-return:
(if (global.get $armed) (then (drop (memory.grow (i32.const 1000)))))
