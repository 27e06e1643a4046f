;; attack: Calls the host while it cleans up.
;; expect: score -> trap
;; imports: log

;; in core:
(global $armed (mut i32) (i32.const 0))

;; in score:
(global.set $armed (i32.const 1)) (call $list (local.get $numbers) (local.get $count))

;; in post-return:
(if (global.get $armed) (then (call $log (i32.const 2) (i32.const 1024) (i32.const 2))))
