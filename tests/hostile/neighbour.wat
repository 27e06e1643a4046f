;; attack: none: the well-behaved tenant beside every attack. It adds the number of its calls to every cost.
;; expect: decision -> ok

;; in core:
(global $calls (mut f64) (f64.const 0))

;; in score:
(global.set $calls (f64.add (global.get $calls) (f64.const 1)))
(loop $next
  (local.set $j (i32.add (local.get $numbers) (i32.shl (local.get $i) (i32.const 3))))
  (f64.store (local.get $j) (f64.add (f64.load (local.get $j)) (global.get $calls)))
  (local.set $i (i32.add (local.get $i) (i32.const 1)))
  (br_if $next (i32.lt_u (local.get $i) (local.get $count))))
(call $list (local.get $numbers) (local.get $count))
