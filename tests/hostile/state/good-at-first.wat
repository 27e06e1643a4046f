;; attack: Behaves for 100 calls and traps at the next.
;; expect: score -> trap
;; calls: 101

;; in core:
(global $calls (mut i32) (i32.const 0))

;; in score:
(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
(if (i32.gt_u (global.get $calls) (i32.const 100)) (then unreachable))
(call $list (local.get $numbers) (local.get $count))
