;; attack: 50,000 data segments.
;; expect: load -> structure (data_segments)

;; in core:
;; repeat 50000: (data (i32.const 32768) "x")
