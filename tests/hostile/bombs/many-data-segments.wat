;; attack: 50,000 data segments.
;; expect: load -> structure

;; in core:
;; repeat 50000: (data (i32.const 32768) "x")
