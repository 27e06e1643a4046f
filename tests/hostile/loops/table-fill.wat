;; attack: Fills a table for ever.
;; expect: score -> out-of-fuel

;; in core:
(table $t 1000 funcref)

;; in score:
(loop $again (table.fill $t (i32.const 0) (ref.null func) (i32.const 1000)) (br $again))
(unreachable)
