;; attack: Fills all of a large memory at once, which one check of the deadline covers.
;; expect: score -> out-of-fuel
;; memory: 128

;; in score:
(memory.fill (i32.const 0) (i32.const 1) (i32.const 8388608))
(unreachable)
