;; attack: Declares a table of 10,000,000 elements.
;; expect: load -> structure (table_elements)

;; in core:
(table 10000000 funcref)
