;; attack: Copies a large memory onto itself for ever.
;; expect: score -> out-of-fuel
;; memory: 128

;; in score:
(loop $again (memory.copy (i32.const 1) (i32.const 0) (i32.const 8000000)) (br $again))
(unreachable)
