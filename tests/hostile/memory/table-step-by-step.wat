;; attack: Grows a table by one element at a time, for ever.
;; expect: score -> memory

;; in core:
(table $t 1 funcref)

;; in score:
(loop $more (drop (table.grow $t (ref.null func) (i32.const 1))) (br $more))
(unreachable)
