;; attack: 3 MB that nobody reads.
;; expect: load -> structure

;; in core:
(@custom "padding"
;; repeat 48000: "................................................................"
)
