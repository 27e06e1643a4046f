;; attack: Bulk operations, each of which is one step for the deadline, with fuel to spare.
;; expect: score -> deadline
;; limits: fuel_base=1000000000000 deadline_us=2000
;; memory: 128

;; in score:
(loop $again (memory.fill (i32.const 0) (i32.const 1) (i32.const 8388608)) (br $again))
(unreachable)
