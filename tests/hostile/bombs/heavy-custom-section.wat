;; attack: A megabyte of a section that no machine reads.
;; expect: load -> structure (custom_bytes)

;; in core:
(@custom "padding"
;; repeat 17000: "................................................................"
)
