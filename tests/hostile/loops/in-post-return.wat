;; attack: The clean-up after a good answer never returns.
;; expect: score -> out-of-fuel

;; in core:
(global $armed (mut i32) (i32.const 0))

;; in score:
(global.set $armed (i32.const 1)) (call $list (local.get $numbers) (local.get $count))

;; in post-return:
(if (global.get $armed) (then (loop $again (br $again)) (unreachable)))
