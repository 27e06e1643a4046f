;; attack: The clean-up after a good answer traps.
;; expect: score -> trap

;; in core:
(global $armed (mut i32) (i32.const 0))

;; in score:
(global.set $armed (i32.const 1)) (call $list (local.get $numbers) (local.get $count))

;; in post-return:
(if (global.get $armed) (then unreachable))
