;; attack: Keeps a place in a table of every call.
;; expect: score -> memory
;; calls: 1100

;; in core:
(table $t 1 funcref)

;; in score:
(drop (table.grow $t (ref.null func) (i32.const 1)))
(call $list (local.get $numbers) (local.get $count))
