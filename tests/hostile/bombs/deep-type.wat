;; attack: A list of lists, 2,000 deep.
;; expect: load -> structure (types)

;; in component:
(type $t0 (list u8))
;; repeat 2000: (type $t# (list $t#-1))
