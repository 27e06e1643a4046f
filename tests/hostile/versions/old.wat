;; attack: Speaks version 0.0.9 of the contract.
;; expect: load -> version
;; version: 0.0.9
