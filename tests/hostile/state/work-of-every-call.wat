;; attack: Looks at everything it ever saw, more at every call.
;; expect: score -> out-of-fuel
;; calls: 500

;; in core:
(global $seen (mut i32) (i32.const 0))

;; in score:
(global.set $seen (i32.add (global.get $seen) (i32.const 2000)))
(loop $next
  (local.set $i (i32.add (local.get $i) (i32.const 1)))
  (br_if $next (i32.lt_u (local.get $i) (global.get $seen))))
(call $list (local.get $numbers) (local.get $count))
