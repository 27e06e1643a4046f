;; attack: Grows a table by 4 billion elements, which its fuel does not pay.
;; expect: score -> out-of-fuel

;; in core:
(table $t 1 funcref)

;; in score:
(drop (table.grow $t (ref.null func) (i32.const -1))) (unreachable)
