;; attack: 20,000 function types.
;; expect: load -> structure (types)

;; in core:
;; repeat 20000: (type (func))
