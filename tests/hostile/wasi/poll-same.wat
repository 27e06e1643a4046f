;; attack: Polls one handle sixteen thousand times at once.
;; expect: score -> bad-answer
;; imports: wasi

;; in score:
(local.set $j (call $later (i64.const 1)))
(local.set $i (i32.const 65536))
(loop $fill
  (local.set $i (i32.sub (local.get $i) (i32.const 4)))
  (i32.store (local.get $i) (local.get $j))
  (br_if $fill (local.get $i)))
(call $poll (i32.const 0) (i32.const 16384) (i32.const 9000))
(unreachable)
