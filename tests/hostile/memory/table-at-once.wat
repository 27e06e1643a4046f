;; attack: Grows a table by 1,000,000 elements.
;; expect: score -> memory
;; limits: fuel_base=100000000

;; in core:
(table $t 1 funcref)

;; in score:
(drop (table.grow $t (ref.null func) (i32.const 1000000))) (unreachable)
