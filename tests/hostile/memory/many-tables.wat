;; attack: Four tables, each within its own limit.
;; expect: load -> structure (tables)

;; in core:
(table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref)
