;; attack: Three loops, one in the other, each of which starts over at once.
;; expect: score -> out-of-fuel

;; in score:
(loop $a (loop $b (loop $c (br_if $c (i32.const 1))) (br_if $b (i32.const 1))) (br_if $a (i32.const 1)))
(unreachable)
