from nsm.cli import main

main()
