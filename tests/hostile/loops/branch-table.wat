;; attack: Jumps in circles through a table of branches.
;; expect: score -> out-of-fuel

;; in score:
(loop $a
  (block $b
    (block $c (br_table $c $b $a (i32.and (local.get $i) (i32.const 1))))
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br $a))
  (local.set $i (i32.const 0))
  (br $a))
(unreachable)
