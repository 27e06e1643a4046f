;; attack: Declares a table of 10,000,000 elements.
;; expect: load -> structure

;; in core:
(table 10000000 funcref)
